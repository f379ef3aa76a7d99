//go:build !linux

package zktest

import "testing"

// requireLinksProxied looks into /proc, which only Linux has.
func requireLinksProxied(*testing.T, *Ensemble) {}
