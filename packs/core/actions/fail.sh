#!/bin/sh
set -eu
. "${0%/*}/../lib/parameters.sh"
read_parameters message exit_code
printf '%s\n' "$parameter_message" >&2
exit "$parameter_exit_code"
