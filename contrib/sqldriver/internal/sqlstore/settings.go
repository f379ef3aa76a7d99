package sqlstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver/dsn"
)

// Settings are the parameters of a data source name that the drivers share.
type Settings struct {
	Timeout     time.Duration // session timeout
	Grace       time.Duration // zero means Timeout
	EmptyNew    bool          // tables without data count as new
	Connections int           // maximum for one session
}

func Defaults() Settings { return Settings{Timeout: 10 * time.Second, Connections: DefaultConnections} }

// OwnGrace returns the grace of this client's sessions: at least Timeout.
func (s *Settings) OwnGrace() time.Duration { return max(s.Grace, s.Timeout) }

func (s *Settings) AddTo(p dsn.Parameters) {
	p["session_timeout"] = duration(&s.Timeout)
	p["grace"] = duration(&s.Grace)
	p["empty_is_new"] = dsn.Bool(&s.EmptyNew)
	p["max_connections"] = dsn.Int(&s.Connections, MinConnections, MaxConnections)
}

func duration(d *time.Duration) func(string) error {
	return dsn.Duration(d, 500*time.Millisecond, time.Hour)
}

// Check returns an error if the settings contradict each other.
func (s *Settings) Check() error {
	if s.Grace != 0 && s.Grace < s.Timeout {
		return errors.New("grace is less than session_timeout: leases have to end before it does")
	}
	return nil
}

// Set copies the nonzero fields of a driver's Options.
func (s *Settings) Set(timeout, grace time.Duration, emptyNew bool) error {
	s.EmptyNew = emptyNew
	if timeout != 0 {
		if err := duration(&s.Timeout)(timeout.String()); err != nil {
			return fmt.Errorf("Options.SessionTimeout: %w", err)
		}
	}
	if grace != 0 {
		if err := duration(&s.Grace)(grace.String()); err != nil {
			return fmt.Errorf("Options.Grace: %w", err)
		}
	}
	if s.Check() != nil {
		return errors.New("Options.Grace is less than SessionTimeout: leases have to end before it does")
	}
	return nil
}
