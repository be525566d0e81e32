#!/bin/sh
# Takes as much memory as it is told to, and then has the work done.
. /dev/stdin
dd if=/dev/zero of=/dev/null bs="${mib}M" count=20 status=none
echo done
