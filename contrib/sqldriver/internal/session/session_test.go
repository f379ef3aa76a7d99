package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// slowStore is a store that answers after the session timeout.
type slowStore struct{ Store }

func (slowStore) Open(context.Context) error { return nil }

func (slowStore) Begin(_ context.Context, _ string, timeout time.Duration) error {
	time.Sleep(2 * timeout)
	return nil
}

func (slowStore) Close() error { return nil }

// A slow database must not look like an error that stays.
func TestConnectWithALateAnswerMayBeRepeated(t *testing.T) {
	_, err := Connect(t.Context(), "slow", slowStore{}, 10*time.Millisecond)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded) {
		t.Errorf("Connect returned %v, want an error that matches ErrUnavailable, and not ErrSessionEnded", err)
	}
}
