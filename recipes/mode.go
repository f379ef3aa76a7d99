package recipes

import (
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Mode is how a lock is held or wanted.
type Mode int

const (
	// Shared is a reader's mode: any number of readers hold the lock together.
	Shared Mode = iota + 1
	// Exclusive is a writer's mode: nobody else holds the lock.
	Exclusive
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	}
	return "no mode"
}

const (
	sharedKind    = "-R-"
	exclusiveKind = "-W-"
)

// prefix returns what the names of the host's nodes of this mode begin with.
func (m Mode) prefix(host string) string {
	if m == Shared {
		return host + sharedKind
	}
	return host + exclusiveKind
}

// modeOf returns the mode of a node that a driver has listed, as its name says. The name is
// read from the right: the host name may itself look like a kind and a sequence. Any other name
// counts as exclusive, so that no contender is let in beside a kind that is not known.
func modeOf(n driver.Node) Mode {
	prefix, seq, ok := driver.ParseName(n.Name)
	if ok && seq == n.Seq && strings.HasSuffix(prefix, sharedKind) {
		return Shared
	}
	return Exclusive
}
