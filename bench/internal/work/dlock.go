package work

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/zkdriver" // registers "zk"
)

var background = context.Background()

// dlockWith returns dlock as one of the libraries to compare. It appends
// parameters, such as "&handover=list", to the data source name.
func dlockWith(parameters string) library {
	return func(p Plan) (session, error) {
		dsn := fmt.Sprintf("zk://%s%s?session_timeout=%ds%s", p.Server, path.Dir(p.Path), p.Timeout, parameters)
		client, err := dlock.Open("zk", dsn)
		if err != nil {
			return nil, err
		}
		return dlockSession{client}, client.Ping(background)
	}
}

type dlockSession struct{ client *dlock.Client }

func (s dlockSession) contender(lock string) (contender, error) {
	return &dlockContender{mutex: s.client.RWMutex(path.Base(lock))}, nil
}

func (s dlockSession) close() error { return s.client.Close() }

type dlockContender struct {
	mutex *dlock.RWMutex
	held  *dlock.Lock
}

func (c *dlockContender) lock() (err error) {
	c.held, err = c.mutex.Lock(background)
	return err
}

func (c *dlockContender) rlock() (err error) {
	c.held, err = c.mutex.RLock(background)
	return err
}

func (c *dlockContender) tryLock() (bool, error) {
	held, err := c.mutex.TryLock(background)
	if errors.Is(err, dlock.ErrLocked) {
		return false, nil
	}
	c.held = held
	return err == nil, err
}

func (c *dlockContender) unlock() error  { return c.held.Unlock() }
func (c *dlockContender) runlock() error { return c.held.Unlock() }
