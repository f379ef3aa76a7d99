package recipes

import "fmt"

// Mode is how a lock is held or requested.
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

// ParseMode parses "shared" or "exclusive". Any other text is an error.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{Shared, Exclusive} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("dlock: %q is no mode of a lock (want %q or %q)", s, Shared, Exclusive)
}

// MarshalText returns "shared" or "exclusive", or an empty text for the zero
// value. Other values are an error.
func (m Mode) MarshalText() ([]byte, error) {
	if m == 0 {
		return nil, nil
	}
	_, err := ParseMode(m.String())
	return []byte(m.String()), err
}

// UnmarshalText is the inverse of MarshalText. On error the mode is unchanged.
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
