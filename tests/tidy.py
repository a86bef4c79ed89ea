#!/usr/bin/env python3
"""tidy.py: the style of this code base as a test.

It reads every tracked C file and fails on: files and functions that grew too long, deep nesting, long parameter
lists, includes that point the wrong way between layers, calls that bypass a door (heap, clock, randomness), missing
head comments and left-over markers. tests/tidy.json holds the exceptions; it is a ratchet: an entry that is no longer
needed is an error too, so the list can only shrink (tests/tidy.py --write rewrites it).
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RATCHET = ROOT / "tests" / "tidy.json"

FILE_LINES_MAX = 600      # above it the head comment must say why ("Size: ...")
FUNCTION_LINES_MAX = 70
KERNEL_LINES_MAX = 120    # straight-line kernels
PARAMETERS_MAX = 5        # kernels and function tables excepted
NESTING_MAX = 3

# A layer may include itself and what stands before it in its list.
LAYERS = {
    "common/base": ["common/base"],
    "kernels": ["kernels", "common/base"],
    "common/model": ["common/model", "kernels", "common/base"],
    "common/text": ["common/text", "common/base"],
    "common/conf": ["common/conf", "common/base"],
    "common/net": ["common/net", "common/base"],
    "leader": ["leader", "common", "kernels"],
    "worker": ["worker", "common", "kernels"],
    "ctl": ["ctl", "common"],
}

# call -> (why, files that are the door itself)
BANNED = {
    r"sprintf|vsprintf|strcpy|strcat|strncpy|strncat|atoi|atol|atof|gets|strtok|alloca": ("unbounded or unchecked", ()),
    r"malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|posix_memalign": (
        "the heap's door is common/base/mem.h", ("common/base/mem.c",)),
    r"clock_gettime|gettimeofday|time|nanosleep|usleep|sleep": (
        "the clock's door is common/base/env.h", ("common/base/env_real.c", "common/base/log.c")),
    r"getrandom|rand|srand|random|drand48|rand_r": ("randomness' door is common/base/env.h", ("common/base/env_real.c",)),
    r"exit|_exit|abort": ("only main and check() end the process",
                          ("common/base/check.c", "leader/main.c", "worker/main.c", "ctl/main.c")),
}
MARKERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# In one pass: an apostrophe in a comment begins no string, and slashes in a string no comment.
COMMENTS_AND_STRINGS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.S)


def tracked_files():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "*.c", "*.h"], capture_output=True, text=True, check=True)
    return [f for f in listed.stdout.split("\n") if f and (ROOT / f).exists()]


def without_comments_and_strings(text):
    return COMMENTS_AND_STRINGS.sub(lambda m: "\n" * m.group().count("\n") if m.group()[0] == "/" else '""', text)


def functions(lines):
    """Yields (name, parameters, first line, last line) of each function body in formatted code."""
    signature, start = "", 0
    for number, line in enumerate(lines, 1):
        if line.startswith("}"):
            match = re.search(r"(\w+)\s*\((.*)\)\s*(?:__attribute__.*)?\{$", signature, re.S)
            if match and not signature.startswith(("struct", "enum", "union")) or match and "(" in signature:
                yield match.group(1), match.group(2), start, number
            signature = ""
        elif line and not line[0].isspace() and line[0] not in "#/":
            if not signature or signature.rstrip().endswith((";", "{")) or not signature:
                signature, start = "", number
            signature += line + " "
            signature = signature.rstrip()
            if signature.endswith(";"):
                signature = ""
        elif signature and not signature.endswith("{"):
            signature += " " + line.strip()


def count_parameters(text):
    depth, count = 0, 1 if text.strip() not in ("", "void") else 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        count += c == "," and depth == 0
    return count


def layer_of(path):
    for layer in sorted(LAYERS, key=len, reverse=True):
        if path.startswith(layer + "/"):
            return layer
    return None


def check_layers(path, text):
    layer = layer_of(path)
    for included in re.findall(r'^#include "([^"]+)"', text, re.M):
        if layer is None or "/" not in included:
            continue
        if not any(included.startswith(allowed + "/") for allowed in LAYERS[layer]):
            yield f"{path}: layer {layer} includes {included}"


def check_calls(path, code):
    if layer_of(path) is None:
        return
    for calls, (why, doors) in BANNED.items():
        if path in doors:
            continue
        for match in re.finditer(rf"(?<![\w.>])({calls})\s*\(", code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(1)}(): {why}"


def check_shape(path, lines):
    is_kernel = path.startswith("kernels/")
    is_test = path.startswith("tests/")
    head = "\n".join(lines[:25])
    if len(lines) > FILE_LINES_MAX and "Size:" not in head:
        yield f"{path}: file of {len(lines)} lines"
    for name, parameters, start, end in functions(lines):
        length = end - start + 1
        if length > (KERNEL_LINES_MAX if is_kernel else FUNCTION_LINES_MAX):
            yield f"{path}: function {name} of {length} lines"
        if not is_kernel and not is_test and count_parameters(parameters) > PARAMETERS_MAX:
            yield f"{path}: function {name} with {count_parameters(parameters)} parameters"
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip(" "))
        if re.match(r"\s*(if|for|while|switch|do)\b", line) and indent > 4 * NESTING_MAX:
            yield f"{path}: nesting of {indent // 4} at \"{line.strip()[:50]}\""


def check_text(path, text, lines):
    name = path.rsplit("/", 1)[-1]
    if not lines or not lines[0].startswith(f"// {name}: "):
        yield f"{path}: first line must be \"// {name}: what it owns\""
    if name.endswith(".h") and not path.startswith("tests/"):
        guard = "MOESAIC_" + re.sub(r"[/.]", "_", path).upper()
        if f"#ifndef {guard}\n" not in text:
            yield f"{path}: include guard must be {guard}"
    for number, line in enumerate(lines, 1):
        if MARKERS.search(line):
            yield f"{path}:{number}: left-over marker"
        if "\t" in line or line != line.rstrip():
            yield f"{path}:{number}: tab or trailing space"


def check_file(path):
    text = (ROOT / path).read_text()
    lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
    code = without_comments_and_strings(text)
    yield from check_text(path, text, lines)
    yield from check_layers(path, text)
    yield from check_calls(path, code)
    yield from check_shape(path, code.split("\n")[:-1])


def check_links():
    """Relative links in the documents must lead somewhere."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "*.md"], capture_output=True, text=True, check=True)
    for path in listed.stdout.split():
        for target in re.findall(r"\]\(([^)#]+)", (ROOT / path).read_text()):
            if "://" not in target and not (ROOT / path).parent.joinpath(target).exists():
                yield f"{path}: link to {target} leads nowhere"


def key_of(problem):
    """Numbers change with every edit; an exception is for the place, not the number."""
    return re.sub(r"(?<=[:\s])\d+(?=[:\s])", "N", problem)


def number_in(problem):
    match = re.search(r"of (\d+) lines|with (\d+) parameters", problem)
    return int(match.group(1) or match.group(2)) if match else 0


def main():
    problems = [p for path in tracked_files() for p in check_file(path)] + list(check_links())
    allowed = json.loads(RATCHET.read_text()) if RATCHET.exists() else {}
    if "--write" in sys.argv[1:]:
        RATCHET.write_text(json.dumps({key_of(p): number_in(p) for p in problems}, indent=1, sort_keys=True) + "\n")
        return 0
    found = {}
    failures = []
    for problem in problems:
        key = key_of(problem)
        found[key] = max(found.get(key, 0), number_in(problem))
        if key not in allowed or number_in(problem) > allowed[key]:
            failures.append(problem)
    failures += [f"tests/tidy.json: no longer needed: {key}" for key in allowed if key not in found]
    for failure in failures:
        print(failure)
    print(f"tidy: {len(tracked_files())} files, {len(failures)} problems, {len(allowed)} exceptions")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
