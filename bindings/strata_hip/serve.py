"""`strata-hip serve`: llama.cpp's own server on this backend's device."""
import http.client
import os
import re
import socket
from typing import List, Optional

from . import child
from .errors import StrataError
from .llama import check_model_file
from .tools import tools

PROGRAM = "llama-server"
ONLY_TELL = ("--usage", "--version", "-cl", "--cache-list", "--completion-bash")  # it prints something and ends, without a device
DOWNLOADS = ((("-mu", "--model-url"), "LLAMA_ARG_MODEL_URL"), (("-dr", "--docker-repo"), "LLAMA_ARG_DOCKER_REPO"),
             (("-hf", "-hfr", "--hf-repo"), "LLAMA_ARG_HF_REPO"))
ROUTER = ((("--models-dir",), "LLAMA_ARG_MODELS_DIR"), (("--models-preset",), "LLAMA_ARG_MODELS_PRESET"))
_NAMED_MODEL = re.compile(r"--(embd|fim|gpt-oss|vision)-.+-(default|spec)")  # --gpt-oss-20b-default and the like download it


def run(arguments: List[str], runtime: Optional[str] = None) -> int:
    """Runs llama-server until it ends.

    arguments: its own flags. The model computes on our device unless they, or the variable LLAMA_ARG_DEVICE, name others; with --rpc
    llama-server shares it out over those of all servers and ours.
    runtime: as for plugin.load(). Returns the exit code. Raises DeviceError if there is no such device, ModelNotFoundError or
    ModelFileError if the model's file is plainly none, StrataError if llama-server is not there or an RPC server does not answer."""
    devices = child.value_of(("-dev", "--device"), "LLAMA_ARG_DEVICE", arguments)
    if devices is None and only_tells(arguments):
        program, = tools(PROGRAM)
        return child.run([str(program), *arguments], dict(os.environ), lambda process: None)
    path = _model_path(arguments)
    if path and not _downloads(arguments):  # with these it is where the file is put
        check_model_file(path)
    remote = child.value_of(("--rpc",), "LLAMA_ARG_RPC", arguments)
    for server in remote.split(",") if remote else []:
        check_rpc_server(server)
    environment = child.environment(devices, runtime)
    program, = tools(PROGRAM)
    chosen = ["--device", child.DEVICE] if devices is None and remote is None else []
    prefix = child.value_of(("--api-prefix",), "LLAMA_ARG_API_PREFIX", arguments) or ""
    return child.run([str(program), *chosen, *arguments], environment, lambda process: _ready(process, prefix))


def only_tells(arguments: List[str]) -> bool:
    """Whether llama-server prints something that needs no device and ends."""
    return any(argument in ONLY_TELL for argument in arguments)


def lacks_model(arguments: List[str]) -> bool:
    """Whether nothing says what is to be served: llama-server would start as a router of no models."""
    router = any(child.value_of(flags, variable, arguments) for flags, variable in ROUTER)
    return not (only_tells(arguments) or "--list-devices" in arguments or router or _model_path(arguments) or _downloads(arguments))


def _model_path(arguments: List[str]) -> Optional[str]:
    return child.value_of(("-m", "--model"), "LLAMA_ARG_MODEL", arguments)


def _downloads(arguments: List[str]) -> bool:
    """Whether llama-server is to download the model."""
    named = any(_NAMED_MODEL.fullmatch(argument.replace("_", "-")) for argument in arguments)
    return named or any(child.value_of(flags, variable, arguments) for flags, variable in DOWNLOADS)


def check_rpc_server(address: str) -> None:
    """Raises StrataError if nothing listens at "host:port": llama-server would abort and print its stack."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise StrataError(f"--rpc {address}: {error}. It must be the HOST:PORT of a running `strata-hip rpc-server`") from None


def _ready(process: int, prefix: str) -> Optional[str]:
    """The server's address once its model is loaded."""
    for address in child.listening(process):
        if healthy(address, prefix):
            return f"unix:{address}{prefix}" if is_path(address) else f"http://{address}{prefix}"
    return None


def is_path(address: str) -> bool:
    """Whether llama-server takes an address for the path of a socket."""
    return address.endswith(".sock")


def healthy(address: str, prefix: str = "") -> bool:
    """Whether the server at "host:port", or at the path of a socket, answers that it is ready."""
    connection = http.client.HTTPConnection("localhost" if is_path(address) else address, timeout=5)
    try:
        if is_path(address):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(address)
        connection.request("GET", f"{prefix}/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
