package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

func TestCallThatFoundNoFreeConnectionSaysSo(t *testing.T) {
	p := NewPool(nil, 3, time.Second, nil)
	leave, err := p.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Enter(ended)
	want := "store unavailable: all 1 connections of the session for calls were in use: raise max_connections, or make fewer calls at once"
	if err == nil || err.Error() != want || !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := ifBusy(t.Context(), err); err.Error() != want || errors.Is(err, context.Canceled) {
		t.Errorf("an error of the driver's own timeout must not match a context's: %v", err)
	}
}
