"""C files as clang-format would space and indent them: ``c_style.py FILE...``

clang-format has no way to keep an author's line breaks inside initialisers, enums and chains of conditionals. So only what
stands between two tokens on one line, and the indentation of lines that clang-format begins at the same token, is compared.
"""
import re
import subprocess
import sys


def gaps(text):
    """The white space before each character that is none, and that character."""
    return re.findall(r"(\s*)(\S)", text)


def differences(path):
    with open(path) as file:
        source = file.read()
    wanted = subprocess.run(["clang-format", path], capture_output=True, text=True, check=True).stdout
    line = 1
    for (mine, _), (theirs, _) in zip(gaps(source), gaps(wanted), strict=True):
        line += mine.count("\n")
        if ("\n" in mine) == ("\n" in theirs) and mine.split("\n")[-1] != theirs.split("\n")[-1] or mine.count("\n") > 2:
            yield f"{path}:{line}: {source.splitlines()[line - 1]}"


found = [difference for path in sys.argv[1:] for difference in differences(path)]
print(*found, sep="\n", end="\n" * bool(found))
sys.exit(bool(found))
