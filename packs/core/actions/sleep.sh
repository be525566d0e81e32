#!/bin/sh
set -eu
. "${0%/*}/../lib/parameters.sh"
read_parameters duration
printf 'sleeping for %s seconds\n' "$parameter_duration"
# Replaces the shell, so that a signal reaches the sleep itself.
exec sleep "$parameter_duration"
