#!/usr/bin/env python3
"""Fails when a Markdown file links to a file or heading that is not there.

Checked: relative targets and `#anchors` of inline links and images, outside code. External
addresses are not followed.
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def without_code(text):
    text = re.sub(r"^(```|~~~).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path):
    """Anchors of a file's headings, as GitHub makes them."""
    text = re.sub(r"^(```|~~~).*?^\1\s*$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found, count = set(), {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, flags=re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{anchor}-{count[anchor]}" if anchor in count else anchor)
        count[anchor] = count.get(anchor, 0) + 1
    return found


def problems(root, path):
    for target in LINK.findall(without_code(path.read_text())):
        if EXTERNAL.match(target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name) if name else path
        if not file.exists():
            yield f"{path.relative_to(root)}: no file {target}"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{path.relative_to(root)}: no heading {target}"


def markdown_files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.split("\n") if name]
    return [path for path in root.rglob("*.md") if "build" not in path.relative_to(root).parts]


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [path for path in markdown_files(root) if path.exists()]
    found = [line for path in files for line in problems(root, path)]
    print("\n".join(found) or f"links: ok ({len(files)} files)")
    sys.exit(bool(found))
