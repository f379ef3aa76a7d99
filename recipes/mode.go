package recipes

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Mode is how a lock is held or wanted.
type Mode int

const (
	// Shared is a reader's mode: any number of readers hold the lock together.
	Shared Mode = iota + 1
	// Exclusive is a writer's mode: no other contender holds the lock.
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

// ParseMode returns the mode for "shared" or "exclusive", and an error for any
// other text.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{Shared, Exclusive} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("dlock: %q is no mode of a lock (want %q or %q)", s, Shared, Exclusive)
}

// MarshalText returns "shared" or "exclusive", an empty text for the zero
// value, and an error for any other value.
func (m Mode) MarshalText() ([]byte, error) {
	if m == 0 {
		return nil, nil
	}
	_, err := ParseMode(m.String())
	return []byte(m.String()), err
}

// UnmarshalText reverses MarshalText: it sets the mode that the text names.
// After an error the mode is as before.
func (m *Mode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = 0
		return nil
	}
	parsed, err := ParseMode(string(text))
	if err == nil {
		*m = parsed
	}
	return err
}

const (
	sharedKind    = "-R-"
	exclusiveKind = "-W-"
)

// prefix returns the prefix of the nodes that a host creates for this mode.
func (m Mode) prefix(host string) string {
	if m == Shared {
		return host + sharedKind
	}
	return host + exclusiveKind
}

// modeOf returns the mode of a node that a driver has listed. It takes the mode
// from the node's name, which it reads from the right, because the host name
// may itself look like a mode and a sequence. Any other name counts as
// exclusive, so that no contender is granted the lock beside a node whose mode
// is unknown.
func modeOf(n driver.Node) Mode {
	prefix, seq, ok := driver.ParseName(n.Name)
	if ok && seq == n.Seq && strings.HasSuffix(prefix, sharedKind) {
		return Shared
	}
	return Exclusive
}

// hostOf returns the host name that the name of a listed node contains. It is
// empty if the name is not one that dlock makes.
func hostOf(n driver.Node) string {
	prefix, seq, _ := driver.ParseName(n.Name)
	for _, kind := range []string{sharedKind, exclusiveKind} {
		if host, ok := strings.CutSuffix(prefix, kind); ok && seq == n.Seq {
			return host
		}
	}
	return ""
}
