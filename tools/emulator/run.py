"""Boot Linux on Bochs and run the native core there: the instructions of AVX-512 and AMX that the compiler has written.

The guest is a kernel and a folder of files (an initramfs) on an ISO image. Its first process is ``init.cpp``, which
runs ``levels.cpp`` and the comparisons of ``tests/native`` (linked with the objects of the core's own build) and
``model.py`` (with the core itself); what they print comes over the serial port. docs/performance.md tells how to build
Bochs.
"""

from __future__ import annotations

import argparse
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = Path("src/millstream/native/src")
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wno-psabi", f"-I{ROOT / SOURCES}"]
LOADER = (Path("/usr/lib/ISOLINUX/isolinux.bin"), Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"))
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # compiling takes the guest minutes
END = re.compile(r"emulator: (\d+) programs, (\d+) failed")

# Skylake-X, as Linux needs nothing of what else a Sapphire Rapids has; time runs as fast as instructions do.
CPU = 'model=corei7_skylake_x, add_features="avx512vnni,avx512bf16,amx,amx_int8,amx_bf16", ips=40000000, cpuid_freq=ips'
BOCHSRC = """
display_library: nogui
megs: 1024
cpu: {cpu}, reset_on_triple_fault=0
romimage: file="{bios}"
vgaromimage: file="{vga}"
ata0-master: type=cdrom, path="{folder}/guest.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="{folder}/serial"
clock: sync=none
log: "{folder}/bochs.log"
panic: action=fatal
error: action=ignore
info: action=ignore
"""
ISOLINUX = """
DEFAULT guest
PROMPT 0
LABEL guest
KERNEL /kernel
APPEND initrd=/initrd console=ttyS0,115200 loglevel=4 mitigations=off nokaslr panic=-1
"""


def fail(message: str) -> NoReturn:
    sys.exit(f"emulator: {message}")


def find(wanted: str, folder: Path) -> Path:
    """The image of that name which came with Bochs."""
    for place in (
        Path(os.environ.get("BXSHARE", "/nowhere")),
        folder,
        Path("/usr/share/bochs"),
        Path("/usr/share/vgabios"),
    ):
        for found in sorted(place.rglob(wanted)):
            return found
    fail(f"no {wanted} near {folder}: say in BXSHARE where Bochs has its images")


def run(command: list[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        fail(f"{command[0]} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done  # type: ignore[no-any-return]


def build(core: Path, compiler: str, folder: Path) -> dict[str, bytes]:
    """The programs of the guest, by their paths in it."""
    kernels = sorted((core / "CMakeFiles/_core.dir" / SOURCES / "kernels").glob("*.o"))
    names = {path.name.split(".")[0] for path in kernels}
    if missing := {"generic", "avx2", "avx512", "amx", "dispatch"} - names:
        fail(f"{core} has no objects of {', '.join(sorted(missing))}: build it with tools that know the levels")
    tests = sorted((ROOT / "tests/native").glob("emulated_*.cpp"))
    programs = {"init": [HERE / "init.cpp"], "tests/1-levels": [HERE / "levels.cpp", *kernels]}
    for test in tests:
        run([compiler, *FLAGS, "-Dmain=compare", "-c", test, "-o", folder / f"{test.stem}.o"])
        programs[f"tests/2-{test.stem}"] = [HERE / "permitted.cpp", folder / f"{test.stem}.o", *kernels]
    files = {}
    for name, parts in programs.items():
        run([compiler, *FLAGS, "-static", *parts, "-o", folder / "program"])
        files[name] = (folder / "program").read_bytes()
    return files


def interpreter(core: Path, folder: Path) -> dict[str, bytes]:
    """Python, the core and whatever ``model.py`` imports; it is run on this machine to see that."""
    paths = [str(ROOT / "tests"), str(ROOT / "src"), *(p for p in sys.path if p.endswith("site-packages"))]
    env = {**os.environ, "FILES": "1", "MILLSTREAM_CORE": str(core), "MILLSTREAM_ISA": "generic"}
    program = f"import os, sys\nos.environ['MILLSTREAM_CORE'] = {str(core)!r}\nsys.path[:0] = {paths!r}\n"
    program += (HERE / "model.py").read_text().replace("from __future__ import annotations\n", "")
    python = Path(sys.executable).resolve()
    done = run([python, "-IBc", program], env=env)
    found = {name.lstrip("/"): Path(name).read_bytes() for name in done.stdout.split("\n") if name}
    for name in list(found):  # the loader asks for libx.so.1 where the file is libx.so.1.2
        found[re.sub(r"(\.so\.\d+)[.\d]+$", r"\1", name)] = found[name]
    for loader in re.findall(r"/\S*ld-linux\S*", run(["ldd", python]).stdout):
        found[loader.lstrip("/")] = Path(loader).read_bytes()
    for name in re.findall(r"=> (/\S+)", run(["ldd", python]).stdout):
        found[name.lstrip("/")] = Path(name).read_bytes()
    for name in [name for name in found if name.endswith(".py")]:
        compiled = Path(name).parent / "__pycache__" / f"{Path(name).stem}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile("/" + name, str(folder / "pyc"), doraise=True, invalidation_mode=UNCHECKED)
        found[str(compiled)] = (folder / "pyc").read_bytes()
    found["tests/3-model"] = f"#!{python} -IB\n{program}".encode()
    found[str(python).lstrip("/")] = python.read_bytes()
    return found


def archive(files: dict[str, bytes]) -> Iterator[bytes]:
    """An initramfs: cpio's "new ASCII" format (buffer-format.rst of the kernel), everything executable."""
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    entries = [(name, b"", 0o040755) for name in sorted({*folders, "proc", "dev", "tmp"})]  # parents come first
    entries += [(name, data, 0o100755) for name, data in files.items()]
    for i, (name, data, mode) in enumerate([*entries, ("TRAILER!!!", b"", 0)], 1):
        numbers = (i, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % number for number in numbers) + name.encode() + b"\0"
        yield head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def make_image(files: dict[str, bytes], kernel: Path, folder: Path) -> None:
    disk = folder / "disk"
    (disk / "isolinux").mkdir(parents=True)
    for file in LOADER:
        shutil.copy(file, disk / "isolinux")
    shutil.copyfile(kernel, disk / "kernel")
    with open(disk / "initrd", "wb") as out:
        out.writelines(archive(files))
    (disk / "isolinux/isolinux.cfg").write_text(ISOLINUX)
    boot = ["-b", "isolinux/isolinux.bin", "-c", "isolinux/catalog", "-no-emul-boot", "-boot-load-size", "4"]
    run(["xorriso", "-as", "mkisofs", "-o", folder / "guest.iso", *boot, "-boot-info-table", disk])


def boot(bochs: Path, folder: Path, seconds: int) -> str:
    """Run the guest to its end, showing what it prints. What it printed."""
    images = {"bios": find("BIOS-bochs-latest", bochs.parent), "vga": find("VGABIOS-lgpl-latest.bin", bochs.parent)}
    (folder / "bochsrc").write_text(BOCHSRC.format(cpu=CPU, folder=folder, **images))
    serial = folder / "serial"
    serial.touch()
    with open(folder / "bochs.out", "wb") as out, open(serial, errors="replace") as lines:
        command = [str(bochs), "-q", "-f", str(folder / "bochsrc")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        text, end = "", time.monotonic() + seconds
        try:
            while (
                process.poll() is None
                and time.monotonic() < end
                and not END.search(text)
                and "Kernel panic" not in text
            ):
                time.sleep(1)
                text += (new := lines.read())
                print(new, end="", flush=True)
        finally:
            process.kill()
            process.wait()
        print(new := lines.read(), end="", flush=True)
    return text + new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bochs", type=Path, required=True, help="the bochs binary, beside its images")
    parser.add_argument("--kernel", type=Path, required=True, help="a Linux kernel (vmlinuz), 5.16 or later")
    parser.add_argument("--core", type=Path, required=True, help="the folder that the core was built in")
    parser.add_argument("--compiler", default="c++", help="of the programs that test it")
    parser.add_argument("--seconds", type=int, default=3600, help="until the guest is given up")
    parser.add_argument("--no-model", action="store_true", help="compare the levels only: no Python")
    args = parser.parse_args()
    for path in (args.bochs, args.kernel, args.core, *LOADER):
        if not path.exists():
            fail(
                f"{path} is missing (Debian: apt install isolinux syslinux-common xorriso; docs/performance.md: Bochs)"
            )
    if shutil.which("xorriso") is None:
        fail("xorriso is missing (Debian: apt install xorriso)")
    with tempfile.TemporaryDirectory(prefix="millstream-emulator-") as name:
        folder, core = Path(name), args.core.resolve()
        files = build(core, args.compiler, folder)
        if not args.no_model:
            files |= interpreter(core, folder)
        make_image(files, args.kernel, folder)
        print(f"emulator: booting {args.kernel.name} with {len(files)} files on {args.bochs}", flush=True)
        text = boot(args.bochs.resolve(), folder, args.seconds)
        said = (folder / "bochs.out").read_text(errors="replace")[-2000:]
    found = END.search(text)
    if not found:
        fail(f"the guest did not come to its end in {args.seconds} s; Bochs said\n{said}")
    elif found[1] == "0" or found[2] != "0" or "WRONG" in text:
        fail("FAILED")
    else:
        print("emulator: all right")


if __name__ == "__main__":
    main()
