package memdriver

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Isolate implements driver.Isolator. It returns a connector of a new store.
func (st *Store) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	return st.isolate(st.timeout, i)
}

func (c connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	return c.store.isolate(c.timeout, i)
}

func (st *Store) isolate(timeout time.Duration, i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	part := st.parts[i.Name]
	if part == nil {
		part = New()
		part.sequenceStart, part.sequenceLimit = st.sequenceStart, st.sequenceLimit
		if st.parts == nil {
			st.parts = make(map[string]*Store)
		}
		st.parts[i.Name] = part
	}
	if i.SessionTimeout > 0 {
		timeout = i.SessionTimeout
	}
	remove := func(context.Context) error {
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(st.parts, i.Name)
		return nil
	}
	return connector{store: part, timeout: timeout}, remove, nil
}
