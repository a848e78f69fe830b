"""AMD's pseudo-code, compiled to Python functions.

The text comes from the data module of the `tinygrad` package (rdna3/str_pcode.py), which is read as a syntax tree and not
imported, so nothing of tinygrad runs. compiled("v_add_f32") gives the function of that mnemonic, which takes a dict of cells
(S0, S1, S2, D0, D1, VCC, EXEC, SCC, laneId, ...) and changes them.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path

from . import functions, values
from . import softfloat as sf
from .values import Cell, Int, Register

ENCODINGS = ("SOP1Op", "SOP2Op", "SOPCOp", "SOPKOp", "VOP1Op", "VOP2Op", "VOPCOp", "VOP3Op", "VOP3SDOp", "VOP3POp")


class PseudoCodeError(Exception):
    """The text is not pseudo-code that this compiler understands."""


@functools.cache
def texts() -> dict[tuple[str, str], str]:
    """(encoding, mnemonic in lower case without _e32/_e64) -> text."""
    spec = importlib.util.find_spec("tinygrad")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the tests of the emulator need the package tinygrad (pip install '.[test]')")
    path = Path(next(iter(spec.submodule_search_locations))) / "runtime/autogen/amd/rdna3/str_pcode.py"
    table = next(node.value for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign))
    result = {}
    for key, value in zip(table.keys, table.values):
        name = re.sub(r"_E(32|64)$", "", key.attr).lower()
        result.setdefault((key.value.id, name), ast.literal_eval(value))
    return result


@functools.cache
def text(mnemonic: str) -> str:
    for encoding in ENCODINGS:
        if (encoding, mnemonic) in texts():
            return texts()[encoding, mnemonic]
    raise KeyError(mnemonic)


# --- tokens -----------------------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"""\s+
      | //[^\n]*
      | (?P<typed>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[UL]*)
      | (?P<type>\d+'[UIFB](?![0-9a-zA-Z]))
      | (?P<float>\d+\.\d+F?)
      | (?P<int>(?:0x[0-9a-fA-F]+|\d+)(?:ULL|LL|UL|L|U)?)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+:|\+=|-=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE,
)


def tokenize(source: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(source):
        match = TOKEN.match(source, position)
        if not match:
            raise PseudoCodeError(f"cannot read {source[position : position + 20]!r}")
        if match.lastgroup:
            tokens.append((match.lastgroup, match.group()))
        position = match.end()
    tokens.append(("end", ""))
    return tokens


# --- parser and generator: Python source comes out ----------------------------------------------------------------------

BINARY = [
    {"||": "OR"},
    {"&&": "AND"},
    {"|": "v.bit_or"},
    {"^": "v.bit_xor"},
    {"&": "v.bit_and"},
    {"==": "v.equal", "!=": "v.not_equal", "<>": "v.less_or_greater"},
    {"<": "v.less", "<=": "v.less_equal", ">": "v.greater", ">=": "v.greater_equal"},
    {"<<": "v.shift_left", ">>": "v.shift_right"},
    {"+": "v.add", "-": "v.subtract"},
    {"*": "v.multiply", "/": "v.divide", "%": "v.remainder"},
    {"**": "v.power"},
]
ACCESSOR = re.compile(r"(bf|[uifb])(\d+)$")
REGISTERS = {"S0", "S1", "S2", "D0", "D1", "VCC", "EXEC", "EXEC_LO", "SCC", "M0", "SIMM16", "SIMM32", "NEG", "OPSEL", "OPSEL_HI"}
SUBSCRIPTED = {"WAVE_MODE", "WAVE_STATUS"}


class Generator:
    def __init__(self, source: str):
        self.tokens = tokenize(source)
        self.position = 0
        self.lines: list[str] = []
        self.depth = 1
        self.arrays: set[str] = set()
        self.lambdas: set[str] = set()
        self.variables: set[str] = set()
        self.parameters: list[set[str]] = []
        self.used: set[str] = set()
        self.literals: dict[str, str] = {}  # expression -> name of a global, so that literals are made once

    # tokens
    def peek(self) -> str:
        return self.tokens[self.position][1]

    def kind(self) -> str:
        return self.tokens[self.position][0]

    def next(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1][1]

    def accept(self, text: str) -> bool:
        if self.peek() == text and self.kind() != "end":
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise PseudoCodeError(f"expected {text!r}, found {self.peek()!r}")

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    # statements
    def statements(self, *ends: str) -> None:
        start = len(self.lines)
        while self.peek() not in ends and self.kind() != "end":
            if not self.accept(";"):
                self.statement()
        if len(self.lines) == start:
            self.emit("pass")

    def statement(self) -> None:
        if self.accept("declare"):
            self.declaration()
        elif self.accept("if"):
            self.conditional()
        elif self.accept("for"):
            self.loop()
        elif self.accept("break"):
            self.emit("break")
        elif self.accept("return"):
            self.emit(f"return {self.expression()}")
        elif self.peek() == "{":
            self.split_assignment()
        elif self.kind() == "name" and self.tokens[self.position + 1][1] == "=" and self.tokens[self.position + 2][1] == "lambda":
            self.function()
        elif self.kind() == "name" and self.tokens[self.position + 1][1] == "(":
            self.emit(self.expression())
        else:
            self.assignment()

    def declaration(self) -> None:
        name = self.next()
        self.expect(":")
        width, kind = self.next().split("'")
        if self.accept("["):
            count = self.next()
            self.expect("]")
            self.arrays.add(name)
            self.emit(f"a_{name} = [v.Cell(v.Int(0, {width})) for _ in range({int(count)})]")
            if name == "S":  # the sources of v_fma_mix
                self.emit("a_S = [r['S0'], r['S1'], r['S2']]")
                self.used.update(("S0", "S1", "S2"))
        else:
            self.declare(name)
            self.emit(f"c_{name} = v.Cell(v.Int(0, {width}))")

    def declare(self, name: str) -> None:
        self.variables.add(name)

    def conditional(self) -> None:
        self.emit(f"if v.truth({self.expression()}):")
        self.expect("then")
        self.block("elsif", "else", "endif")
        while True:
            if self.accept("elsif"):
                self.emit(f"elif v.truth({self.expression()}):")
                self.expect("then")
                self.block("elsif", "else", "endif")
            elif self.accept("else"):
                self.emit("else:")
                self.block("endif")
            else:
                self.expect("endif")
                return

    def block(self, *ends: str) -> None:
        self.depth += 1
        self.statements(*ends)
        self.depth -= 1

    def loop(self) -> None:
        name = self.next()
        self.expect("in")
        first = self.expression()
        self.expect(":")
        last = self.expression()
        self.expect("do")
        self.declare(name)
        self.emit(f"for n_{name} in range(({first}).value, ({last}).value + 1):")
        self.depth += 1
        self.emit(f"c_{name} = v.Cell(v.Int(n_{name}, 32, True))")
        self.statements("endfor")
        self.depth -= 1
        self.expect("endfor")

    def function(self) -> None:
        name = self.next()
        self.expect("=")
        self.expect("lambda")
        self.expect("(")
        parameters = []
        while not self.accept(")"):
            parameters.append(self.next())
            self.accept(",")
        self.expect("(")
        self.lambdas.add(name)
        self.emit(f"def l_{name}({', '.join('p_' + p for p in parameters)}):")
        self.depth += 1
        self.parameters.append(set(parameters))
        if self.peek() in ("if", "declare", "for", "return"):
            self.statements(")")
        else:
            self.emit(f"return {self.expression()}")
        self.parameters.pop()
        self.depth -= 1
        self.expect(")")

    def split_assignment(self) -> None:
        self.expect("{")
        targets = [self.target()]
        while self.accept(","):
            targets.append(self.target())
        self.expect("}")
        self.expect("=")
        self.emit(f"whole = ({self.expression()}).bits")
        for cell, access, part, _ in reversed(targets):
            if access is None or part is not None:
                raise PseudoCodeError("the parts of a split assignment need types")
            kind, width = access
            self.emit(f"{cell}.set_typed({kind!r}, {width}, v.Int(whole, {width}, {kind == 'i'}))")
            self.emit(f"whole >>= {width}")

    def assignment(self) -> None:
        cell, access, part, old = self.target()
        operator = self.next()
        if operator not in ("=", "+=", "-="):
            raise PseudoCodeError(f"{operator!r} where an assignment was expected")
        value = self.expression()
        if operator != "=":
            value = f"{'v.add' if operator == '+=' else 'v.subtract'}({old}, {value})"
        if part is not None:
            self.emit(f"{cell}.set_slice({part}, {value})")
        elif access is not None:
            self.emit(f"{cell}.set_typed({access[0]!r}, {access[1]}, {value})")
        else:
            self.emit(f"{cell}.set({value})")

    def target(self):
        """An assignable place: (cell, (kind, width) or None, 'high, low' or None, its present value)."""
        name = self.next()
        access = part = None
        if name in self.arrays:
            self.expect("[")
            cell = f"a_{name}[({self.expression()}).value]"
            self.expect("]")
        elif name in REGISTERS:
            cell = self.register(name)
        else:
            if name not in self.variables:
                self.declare(name)
                self.lines.insert(0, f"    c_{name} = v.Cell()")
            cell = f"c_{name}"
        old = f"{cell}.value"
        while True:
            if self.accept("."):
                kind, width = self.accessor()
                old = f"v.access({old}, {kind!r}, {width})"
                access = (kind, width)
            elif self.accept("["):
                index = self.expression()
                if self.accept(":"):
                    low = self.expression()
                    part = f"({index}).value, ({low}).value"
                    old = f"v.slice_bits({old}, {part})"
                else:
                    part = f"({index}).value, ({index}).value"
                    old = f"v.bit({old}, ({index}).value)"
                self.expect("]")
            else:
                return cell, access, part, old

    def accessor(self) -> tuple[str, int]:
        match = ACCESSOR.match(self.peek())
        if not match:
            raise PseudoCodeError(f"unknown accessor {self.peek()!r}")
        self.next()
        return match.group(1), int(match.group(2))

    def register(self, name: str) -> str:
        self.used.add(name)
        return f"r[{name!r}]"

    # expressions
    def expression(self) -> str:
        condition = self.binary(0)
        if self.accept("?"):
            yes = self.expression()
            self.expect(":")
            no = self.expression()
            return f"({yes} if v.truth({condition}) else {no})"
        return condition

    def binary(self, level: int) -> str:
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.kind() == "op" and self.peek() in BINARY[level]:
            function = BINARY[level][self.next()]
            right = self.binary(level + 1)
            if function == "OR":
                left = f"v.boolean(v.truth({left}) or v.truth({right}))"
            elif function == "AND":
                left = f"v.boolean(v.truth({left}) and v.truth({right}))"
            else:
                left = f"{function}({left}, {right})"
        return left

    def unary(self) -> str:
        if self.accept("-"):
            return f"v.negate({self.unary()})"
        if self.accept("~"):
            return f"v.invert({self.unary()})"
        if self.accept("!"):
            return f"v.boolean(not v.truth({self.unary()}))"
        if self.accept("+"):
            return self.unary()
        return self.postfix(self.primary())

    def postfix(self, value: str) -> str:
        while True:
            if self.accept("."):
                kind, width = self.accessor()
                value = f"v.access({value}, {kind!r}, {width})"
            elif self.accept("["):
                index = self.expression()
                if self.accept(":"):
                    value = f"v.slice_bits({value}, ({index}).value, ({self.expression()}).value)"
                elif self.accept("+:"):
                    count = self.expression()
                    value = f"v.slice_bits({value}, ({index}).value + ({count}).value - 1, ({index}).value)"
                else:
                    value = f"v.bit({value}, ({index}).value)"
                self.expect("]")
            else:
                return value

    def primary(self) -> str:
        kind, token = self.tokens[self.position]
        self.position += 1
        if kind == "typed":
            return self.literal(typed_literal(token))
        if kind == "float":
            f = "F32" if token.endswith("F") else "F64"
            return self.literal(float_literal(token.rstrip("F"), f))
        if kind == "int":
            digits = token.rstrip("UL")
            suffix = token[len(digits) :]
            number = int(digits, 0)
            width = 64 if "L" in suffix or number >= 1 << 32 else 32
            return self.literal(f"v.Int({number}, {width}, {'U' not in suffix and number < 1 << (width - 1)})")
        if kind == "type":
            width, letter = token.split("'")
            self.expect("(")
            value = self.expression()
            self.expect(")")
            return f"v.cast({value}, {letter!r}, {width})"
        if token == "(":
            value = self.expression()
            self.expect(")")
            return f"({value})"
        if token == "{":
            parts = [self.expression()]
            while self.accept(","):
                parts.append(self.expression())
            self.expect("}")
            return f"v.concatenate({', '.join(parts)})"
        if kind == "name":
            return self.named(token)
        raise PseudoCodeError(f"unexpected {token!r}")

    def literal(self, expression: str) -> str:
        return self.literals.setdefault(expression, f"k{len(self.literals)}")

    def named(self, name: str) -> str:
        if self.peek() == "(" and name not in self.variables:
            self.next()
            arguments = []
            while not self.accept(")"):
                arguments.append(self.expression())
                self.accept(",")
            return self.call(name, arguments)
        if self.parameters and name in self.parameters[-1]:
            return f"p_{name}"
        if name in self.arrays:
            self.expect("[")
            index = self.expression()
            self.expect("]")
            return f"a_{name}[({index}).value].value"
        if name in self.variables:
            return f"c_{name}.value"
        if name in REGISTERS:
            return f"{self.register(name)}.value"
        if name == "laneId":
            return "v.Int(r['laneId'], 32)"
        if name in ("ROUND_MODE", "ROUND_TOWARD_ZERO"):
            return f"v.Int({int(name == 'ROUND_TOWARD_ZERO')}, 32)"
        if name in functions.CONSTANTS:
            return f"constants[{name!r}]"
        if name == "WAVE_MODE":
            self.expect(".")
            if self.next() != "IEEE":
                raise PseudoCodeError("only WAVE_MODE.IEEE is known")
            return "v.Int(1, 1)"
        raise PseudoCodeError(f"unknown name {name!r}")

    def call(self, name: str, arguments: list[str]) -> str:
        joined = ", ".join(arguments)
        if name in self.lambdas:
            return f"l_{name}({joined})"
        if name in functions.FUNCTIONS:
            return f"functions[{name!r}]({joined})"
        if functions.conversion(name, None):
            mode = "sf.TOWARD_ZERO" if "c_ROUND_MODE" in " ".join(self.lines) else "sf.NEAREST_EVEN"
            return f"conversion({name!r}, {mode})({joined})"
        if name.startswith("v_"):
            return f"instruction({name!r}, {joined})"
        raise PseudoCodeError(f"unknown function {name!r}")


def typed_literal(token: str) -> str:
    width, digits = token.split("'")
    suffix = "U" in digits or digits.startswith("0x")
    digits = digits.rstrip("UL")
    if "." in digits:
        return float_literal(digits, {"16": "F16", "32": "F32", "64": "F64"}[width])
    return f"v.Int({int(digits, 0)}, {width}, {not suffix})"


def float_literal(digits: str, f: str) -> str:
    numerator, denominator = float(digits).as_integer_ratio()
    format = getattr(sf, f)
    return f"v.Float({sf.from_scaled(numerator, 1 - denominator.bit_length(), format)}, sf.{f})"


@functools.cache
def _conversion(name: str, mode: str):
    return functions.conversion(name, lambda: mode)


def _instruction(name: str, *arguments):
    """A pseudo-code function that is another instruction: v_max_f32(a, b)."""
    if name.startswith("v_cvt_"):  # v_cvt_i16_f32 is a conversion, not an instruction of this ISA
        target, source = name[len("v_cvt_") :].split("_")
        return _conversion(f"{source}_to_{target}", sf.NEAREST_EVEN)(arguments[0])
    cells = {f"S{i}": Cell(x) for i, x in enumerate(arguments)}
    width = arguments[-1].width
    cells["D0"] = Register(0, width)
    compiled(name)(cells)
    return values.access(cells["D0"].value, name.rsplit("_", 1)[1][0], width)


@functools.cache
def source_of(mnemonic: str) -> tuple[str, frozenset[str]]:
    """The Python source of a mnemonic and the registers it names."""
    generator = Generator(text(mnemonic))
    generator.statements()
    body = "\n".join(generator.lines)
    globals_ = "".join(f"{name} = {expression}\n" for expression, name in generator.literals.items())
    return f"{globals_}def run(r):\n{body}\n", frozenset(generator.used)


@functools.cache
def compiled(mnemonic: str):
    """The function that executes `mnemonic` on a dict of cells."""
    space = {
        "v": values,
        "sf": sf,
        "functions": functions.FUNCTIONS,
        "constants": functions.CONSTANTS,
        "conversion": _conversion,
        "instruction": _instruction,
    }
    exec(compile(source_of(mnemonic)[0], f"<{mnemonic}>", "exec"), space)
    return space["run"]


def run(mnemonic: str, cells: dict) -> None:
    compiled(mnemonic)(cells)


__all__ = ["Cell", "Int", "PseudoCodeError", "Register", "compiled", "run", "source_of", "text", "texts"]
