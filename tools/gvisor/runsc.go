//go:build never

// Package gvisor names the program, so that go.mod and go.sum list all modules of its build.
package gvisor

import _ "gvisor.dev/gvisor/runsc"
