#!/bin/sh
# Hold the installed dependencies against the known vulnerabilities: audit.sh VENV
#
# Exit codes: 0 none known, 1 some known (they are printed), 3 nothing was audited, as the tool cannot be had or its
# service cannot be reached.
set -u
venv=${1:?usage: audit.sh VENV}
tool="$venv-audit/bin/pip-audit"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

not_audited() {
  echo "audit: $1; nothing was audited" >&2
  exit 3
}

"$venv/bin/python" -m pip --disable-pip-version-check freeze --exclude-editable >"$work/installed.txt" ||
  not_audited "$venv has no packages to list (make install)"
if ! [ -x "$tool" ]; then
  # An environment of its own: what the tool needs is no dependency of ours.
  { "$venv/bin/python" -m venv "$venv-audit" &&
    "$venv-audit/bin/python" -m pip --disable-pip-version-check install -q --retries 0 --timeout 10 'pip-audit>=2.9,<3'
  } >&2 || not_audited "pip-audit cannot be installed"
fi
# It ends with 1 both for findings and for failures; only with findings, or none, does it print a report.
"$tool" --requirement "$work/installed.txt" --no-deps --disable-pip --progress-spinner off --format columns \
  >"$work/report.txt" 2>"$work/errors.txt"
code=$?
if [ $code -eq 0 ]; then
  echo "audit: no known vulnerabilities in $(wc -l <"$work/installed.txt") packages"
elif [ -s "$work/report.txt" ]; then
  cat "$work/report.txt"
  exit 1
else
  tail -n 1 "$work/errors.txt" >&2
  not_audited "the service of known vulnerabilities cannot be reached"
fi
