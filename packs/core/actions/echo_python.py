#!/usr/bin/env python3
import json
import sys

parameters = json.load(sys.stdin)
print(json.dumps({"message": parameters["message"]}))
