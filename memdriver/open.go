package memdriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
)

func init() { dlock.Register("mem", Driver{}) }

// Driver opens stores in memory by name. It is registered as "mem".
type Driver struct{}

// OpenConnector takes a data source name of the form
//
//	name[?session_timeout=5s]
//
// Within a process, a name always stands for the same store; see [Open]. An
// empty name stands for a new store in every call. session_timeout is the
// session timeout of this connector, 10s by default. Connectors of the same
// store may have different timeouts.
//
// Errors name an unknown, repeated or malformed parameter. They never quote the
// data source name, which may contain a password.
func (Driver) OpenConnector(text string) (driver.Connector, error) {
	name, query, _ := strings.Cut(text, "?")
	if strings.Contains(name, "://") {
		return nil, errors.New("mem: dsn: this is the address of another kind of store; a store in memory has a plain name")
	}
	c := connector{timeout: defaultSessionTimeout}
	p := dsn.Parameters{"session_timeout": dsn.Duration(&c.timeout, minSessionTimeout, math.MaxInt64)}
	if err := p.Parse(query); err != nil {
		return nil, fmt.Errorf("mem: dsn: %w", err)
	}
	c.store = Open(name)
	return c, nil
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
