package driver

import (
	"context"
	"errors"
)

// Diagnoser is a connector that can check whether its store, the network and
// the settings suit locks. Package driver/diagnose does most of the work.
//
// Call the function [Diagnose] rather than the interface.
type Diagnoser interface {
	// Diagnose makes the checks in the order of [Checks], and calls report with
	// at least one finding for each. Calls of report do not overlap. If a finding
	// with the level Problem makes the later checks impossible, Diagnose leaves
	// them out.
	//
	// Diagnose may make a session of its own and lock a queue whose name begins
	// with "dlock-doctor-" and is different in each call. It closes the session
	// and removes the queue, and changes nothing else in the store, except that
	// a driver may create its tables, as its first session does. No finding
	// contains a secret.
	//
	// Each check is limited in time, so Diagnose ends even if the store is
	// silent. If ctx ends, Diagnose returns the error of ctx as soon as it has
	// cleaned up, which takes a few seconds at most. Otherwise it returns nil,
	// or an error that matches [errors.ErrUnsupported], before it reports
	// anything.
	Diagnose(ctx context.Context, report func(Finding)) error
}

// Diagnose calls c.Diagnose: see [Diagnoser]. If the connector does not support
// it, the error matches [errors.ErrUnsupported].
func Diagnose(ctx context.Context, c Connector, report func(Finding)) error {
	if d, ok := c.(Diagnoser); ok {
		return d.Diagnose(ctx, report)
	}
	return errors.ErrUnsupported
}

// Finding is the outcome of one check.
type Finding struct {
	Check Check `json:"check"`
	Level Level `json:"level"`
	// Text says what was found. It may contain text of the server.
	Text string `json:"text"`
	// Advice says what to do. It is empty if the level is OK.
	Advice string `json:"advice,omitempty"`
}

// Check names what a [Finding] is about.
type Check string

// The checks of a diagnosis.
const (
	CheckResolve   Check = "resolve"         // the names of the hosts have addresses
	CheckConnect   Check = "connect"         // the addresses accept connections
	CheckTLS       Check = "TLS"             // certificates, and what an unencrypted connection reveals
	CheckLogin     Check = "login"           // the store accepts the user and begins a session
	CheckRights    Check = "rights"          // the user may take and release locks
	CheckTimeout   Check = "session timeout" // the session timeout that the store grants
	CheckOutage    Check = "outage"          // how long an outage of the store may last before locks are lost
	CheckClock     Check = "clock"           // the store's clock, compared with this machine's
	CheckSettings  Check = "settings"        // settings of the server that weaken the guarantees
	CheckSequences Check = "sequences"       // how many more locks the sequences have room for
)

// Checks returns all checks in the order of a diagnosis.
func Checks() []Check {
	return []Check{CheckResolve, CheckConnect, CheckTLS, CheckLogin, CheckRights,
		CheckTimeout, CheckOutage, CheckClock, CheckSettings, CheckSequences}
}

// Level says how bad a [Finding] is.
type Level int

// The levels of findings.
const (
	OK      Level = iota
	Unknown       // could not be determined, but locks work
	Warning       // locks work, but something may break them or weaken their guarantees
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
