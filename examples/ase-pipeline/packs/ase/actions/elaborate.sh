#!/bin/sh
# Becomes the solver, so that its exit code is that of the attempt.
set -eu
exec "${ASE_SOLVER:-../../solver/solver}" "$ATTUNE_ACTION_FILE"
