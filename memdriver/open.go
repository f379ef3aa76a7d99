package memdriver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

func init() { dlock.Register("mem", Driver{}) }

// Driver opens stores in memory by name. It is registered as "mem".
type Driver struct{}

// OpenConnector takes a dsn of the form
//
//	name[?session_timeout=5s]
//
// Within a process, a name always stands for the same store; see [Open]. An
// empty name stands for a new store in every call. session_timeout is the
// session timeout of this connector, 10s by default. Other connectors of the
// same store may have another one.
//
// If a parameter is unknown, repeated or malformed, the error names it. No
// error repeats the dsn, which may be meant for another driver and contain a
// password.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	name, query, _ := strings.Cut(dsn, "?")
	if strings.Contains(name, "://") {
		return nil, errors.New("mem: dsn: this is the address of another kind of store; a store in memory has a plain name")
	}
	timeout, err := parseTimeout(query)
	if err != nil {
		return nil, fmt.Errorf("mem: dsn: %w", err)
	}
	return connector{store: Open(name), timeout: timeout}, nil
}

func parseTimeout(query string) (time.Duration, error) {
	params, err := url.ParseQuery(query)
	if err != nil {
		return 0, errors.New("malformed parameters")
	}
	timeout := defaultSessionTimeout
	for name, values := range params {
		switch {
		case name != "session_timeout":
			return 0, fmt.Errorf("unknown parameter%s (the only parameter is session_timeout)", quoted(name))
		case len(values) > 1:
			return 0, fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
		if timeout, err = time.ParseDuration(values[0]); err != nil {
			return 0, fmt.Errorf("parameter %q is not a duration such as 10s or 500ms", name)
		}
		if timeout < minSessionTimeout {
			return 0, fmt.Errorf("parameter %q: %v is less than %v", name, timeout, minSessionTimeout)
		}
	}
	return timeout, nil
}

// quoted returns the parameter name in quotes, for an error. It returns "" for
// an unusual name, which may be part of another driver's data source name and
// contain a password.
func quoted(name string) string {
	if len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

type connector struct {
	store   *Store
	timeout time.Duration
}

func (c connector) Connect(ctx context.Context) (driver.Session, error) {
	return c.store.connect(ctx, c.timeout)
}

var (
	storesMu sync.Mutex
	stores   = make(map[string]*Store)
)

// Open returns the store with that name, and creates it on first use. It lives
// as long as the process. For an empty name, Open returns a new store each
// time, like [New]. Open is safe for concurrent use.
func Open(name string) *Store {
	if name == "" {
		return New()
	}
	storesMu.Lock()
	defer storesMu.Unlock()
	st := stores[name]
	if st == nil {
		st = New()
		stores[name] = st
	}
	return st
}
