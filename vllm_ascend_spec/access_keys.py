"""What access keys of well-known services look like."""

from __future__ import annotations

import re

ACCESS_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|[sr]k-[A-Za-z0-9_-]{20,}|gh[opsu]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abp]-[\w-]{10,}|AKIA[A-Z0-9]{16})",
    re.ASCII,
)
