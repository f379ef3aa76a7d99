//go:build !linux

package zktest

import "testing"

// requireLinksProxied is a no-op, because it needs Linux's /proc.
func requireLinksProxied(*testing.T, *Ensemble) {}
