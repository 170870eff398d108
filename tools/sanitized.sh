#!/bin/sh
# sanitized.sh COMMAND...: runs it with the native core of build/sanitize. Python itself is not instrumented, so the
# runtime is loaded before it, and what Python leaves allocated at its end is not looked at.
set -eu
library() { "${CXX:-c++}" -print-file-name="$1"; }
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
LD_PRELOAD="$(library libasan.so) $(library libubsan.so) $(library libstdc++.so.6)"
export ASAN_OPTIONS UBSAN_OPTIONS LD_PRELOAD
export MILLSTREAM_CORE=build/sanitize
exec "$@"
