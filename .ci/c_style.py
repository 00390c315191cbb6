"""C files as clang-format would space and indent them: ``c_style.py FILE...``

clang-format has no way to keep an author's line breaks inside initialisers, enums and chains of conditionals. So only
what is between two tokens on one line, and the indentation of lines that clang-format begins at the same token, is
compared.
"""
import re
import subprocess
import sys


def gaps(text):
    """The white space before each character that is none, and that character."""
    return re.findall(r"(\s*)(\S)", text)


def differences(path, source):
    """Numbers of the lines that clang-format would space or indent in another way."""
    command = ["clang-format", f"--assume-filename={path}"]
    wanted = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    lines, line = set(), 1
    for (mine, _), (theirs, _) in zip(gaps(source), gaps(wanted), strict=True):
        line += mine.count("\n")
        if ("\n" in mine) == ("\n"
                              in theirs) and mine.split("\n")[-1] != theirs.split("\n")[-1] or mine.count("\n") > 2:
            lines.add(line)
    return lines


failed = False
for path in sys.argv[1:]:
    with open(path) as file:
        source = file.read()
    # UNROLL for (...) is a macro and a loop, or a loop: clang-format indents what follows in two ways, and both will
    # do.
    for line in sorted(differences(path, source) & differences(path, re.sub(r"\bUNROLL (?=for)", "", source))):
        print(f"{path}:{line}: {source.splitlines()[line - 1]}")
        failed = True
sys.exit(failed)
