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

// Driver opens stores in memory by data source name. It is registered as
// "mem".
type Driver struct{}

// OpenConnector takes a dsn of the form
//
//	name[?session_timeout=5s]
//
// The same name means the same store within this process, see [Open]; an empty
// name means a new store with every call. session_timeout (10s) belongs to the
// sessions of this connector: connectors of one store may differ in it. A
// parameter that is unknown, repeated or malformed is an error that names it. Errors
// do not repeat the dsn: it may be that of another driver, with a password in it.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	name, query, _ := strings.Cut(dsn, "?")
	if strings.Contains(name, "://") {
		return nil, errors.New("mem: dsn: a store in memory has a plain name; this is the address of another kind of store")
	}
	timeout, err := parseTimeout(query)
	if err != nil {
		return nil, fmt.Errorf("mem: dsn: %w", err)
	}
	return connector{store: Open(name), timeout: timeout}, nil
}

// parseTimeout returns the only parameter there is, or its default.
func parseTimeout(query string) (time.Duration, error) {
	params, err := url.ParseQuery(query)
	if err != nil {
		return 0, errors.New("malformed parameters")
	}
	timeout := defaultSessionTimeout
	for name, values := range params {
		switch {
		case name != "session_timeout":
			return 0, fmt.Errorf("unknown parameter%s (there is session_timeout)", quoted(name))
		case len(values) > 1:
			return 0, fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
		if timeout, err = time.ParseDuration(values[0]); err != nil {
			return 0, fmt.Errorf("parameter %q: not a duration such as 10s or 500ms", name)
		}
		if timeout < minSessionTimeout {
			return 0, fmt.Errorf("parameter %q: %v is less than %v", name, timeout, minSessionTimeout)
		}
	}
	return timeout, nil
}

// quoted returns what can be the name of a parameter, in quotes, and nothing else:
// any other text may be a part of another dsn.
func quoted(name string) string {
	if len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

// connector is a store together with the timeout of the sessions it makes.
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

// Open returns the store of that name. It is made when it is first asked for,
// with default settings, and kept for the life of the process. An empty name
// gives a new store every time, as [New] does.
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
