#!/usr/bin/env node
'use strict';

const fs = require('node:fs');

const parameters = JSON.parse(fs.readFileSync(0, 'utf8'));
console.log(JSON.stringify({ message: parameters.message }));
