package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func TestAnObserverOnlyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ended := newFake(), 0
		f.other(Change{Kind: Create, Queue: "q", Prefix: "b-W-"})
		s, err := Observe(t.Context(), inspected{f}, func() { ended++ }, Config{Name: "fake", Timeout: time.Second})
		require.NoError(t, err)
		w, err := s.WatchQueue(t.Context(), "q")
		require.NoError(t, err)
		time.Sleep(time.Minute) // the session outlives its timeout without heartbeats
		nodes, err := s.List(t.Context(), "q")
		require.NoError(t, err)
		require.Len(t, nodes, 1)
		_, err = s.Walk(t.Context(), "")
		require.NoError(t, err)
		_, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.ErrorIs(t, err, errors.ErrUnsupported)
		f.other(Change{Kind: Create, Queue: "q", Prefix: "b-W-"})
		<-w.C
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		assert.Equal(t, 1, ended)
		delete(f.requests, "look")
		assert.Empty(t, f.requests)
	})
}
