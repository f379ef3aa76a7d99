package driver

import "context"

// Checker is an optional part of a [Connector]. It looks for what only the
// driver knows about its store's server: settings and server versions that
// weaken the guarantees, missing rights, and sequences that are running out.
type Checker interface {
	// Check returns findings about the store: at least one, unless it returns an
	// error. No finding contains a secret. Check may begin a session, which it
	// closes, and create the driver's tables. It changes nothing else in the
	// store.
	//
	// If no session can begin and Check has advice, it returns a finding with the
	// level Problem. Otherwise it returns the error of [Connector.Connect],
	// together with its findings so far. When ctx ends, Check cleans up and
	// returns promptly.
	//
	// A connector that wraps another one returns [errors.ErrUnsupported] if the
	// inner connector has no Check.
	Check(ctx context.Context) ([]Finding, error)
}

// Finding is one result of [Checker.Check].
type Finding struct {
	Level Level `json:"level"`
	// Text says what was found. It may contain text of the server.
	Text string `json:"text"`
	// Advice says what to do. It is empty if the level is OK.
	Advice string `json:"advice,omitempty"`
}

// Level says how bad a [Finding] is.
type Level int

// The levels of findings.
const (
	OK      Level = iota
	Unknown       // locks work, but this could not be checked
	Warning       // locks work, but may break or guarantee less
	Problem       // locks do not work
)

func (l Level) String() string {
	if l < OK || l > Problem {
		return "invalid"
	}
	return [...]string{"ok", "unknown", "warning", "problem"}[l]
}

// MarshalText returns the result of String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
