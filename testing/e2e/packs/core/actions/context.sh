#!/bin/sh
printf '{"action":"%s","execution":"%s","pack":"%s","server":"%s","format":"%s"}\n' \
    "$ATTUNE_ACTION" "$ATTUNE_EXEC_ID" "$ATTUNE_PACK_REF" "$ATTUNE_API_URL" "$ATTUNE_PARAMETER_FORMAT"
