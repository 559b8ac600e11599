"""Writes src/text/unicode_additions.inc: characters whose category is newer than Unicode 14.

Debian 12's PCRE2 knows Unicode 14, the reference tokenizers know a later version. The categories
are read from the reference itself by matching every character.

Usage: unicode_additions.py OUT    (a Python whose unicodedata is version 14, with `tokenizers`)
"""
import sys
import unicodedata

import tokenizers
from tokenizers.pre_tokenizers import Split

CATEGORIES = ("Cf Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs").split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))

assert unicodedata.unidata_version.startswith("14."), unicodedata.unidata_version
rows = []
for category in CATEGORIES:
    split = Split(tokenizers.Regex(rf"\p{{{category}}}+"), "removed", True)
    for _, (begin, end) in split.pre_tokenize_str(TEXT):
        new = [c for c in POINTS[begin:end] if unicodedata.category(chr(c)) == "Cn"]
        for c in new:
            if rows and rows[-1][0] == category and rows[-1][2] == c - 1:
                rows[-1][2] = c
            else:
                rows.append([category, c, c])
with open(sys.argv[1], "w") as out:
    out.write(f"// Written by tools/golden/unicode_additions.py from tokenizers {tokenizers.__version__}.\n")
    for category, first, last in rows:
        out.write(f'{{"{category}", 0x{first:X}, 0x{last:X}}},\n')
