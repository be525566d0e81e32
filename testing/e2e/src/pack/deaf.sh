#!/bin/sh
# Never reads its standard input.
sleep 0.2
echo "never listened"
