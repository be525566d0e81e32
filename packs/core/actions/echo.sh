#!/bin/sh
set -eu
. "${0%/*}/../lib/parameters.sh"
read_parameters message
printf '%s\n' "$parameter_message"
