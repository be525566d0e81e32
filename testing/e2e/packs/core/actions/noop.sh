#!/bin/sh
# One program for every way to say a number: the file is read as the shell it is written for.
set -e
. "$ATTUNE_PARAMETER_FILE"
exit "$exit_code"
