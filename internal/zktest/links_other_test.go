//go:build !linux

package zktest

import "testing"

// requireLinksProxied checks nothing: it would need /proc, which only Linux
// has.
func requireLinksProxied(*testing.T, *Ensemble) {}
