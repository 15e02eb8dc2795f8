"""Compile ``proto/iop/runtime.proto`` into ``iop/wire/runtime_pb2.py``, or check that the two agree.

usage: generate.py --write | --check

The compiler is grpcio-tools in the version that setup.cfg and tox.ini pin; its generation sets the floor of the
protobuf requirement. Run it through ``make proto``.
"""

import pathlib
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto" / "iop" / "runtime.proto"
TARGET = ROOT / "iop" / "wire"


def compile_into(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the generated files by name."""
    arguments = [
        "protoc",
        f"-I{SOURCE.parent}",
        f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}",
        f"--python_out={folder}",
        f"--pyi_out={folder}",
        str(SOURCE),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("the compiler refused runtime.proto")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def main(arguments: list[str]) -> int:
    if arguments not in (["--write"], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        made = compile_into(pathlib.Path(folder))
    if arguments == ["--write"]:
        for name, text in made.items():
            (TARGET / name).write_bytes(text)
        return 0
    stale = [name for name, text in made.items() if (TARGET / name).read_bytes() != text]
    for name in stale:
        print(f"iop/wire/{name} does not come from proto/iop/runtime.proto: run `make proto`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
