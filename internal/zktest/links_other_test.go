//go:build !linux

package zktest

import "testing"

// requireLinksProxied is a no-op, because only Linux has the /proc that it
// needs.
func requireLinksProxied(*testing.T, *Ensemble) {}
