package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

func TestNodeWithoutDataIsCleanedUp(t *testing.T) {
	c := newCaseWith(t, "session_timeout=20s")
	s := newSession(t, c)
	s.Requests.Lose(faults.OpCreate, true)
	_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
	require.Error(t, err, "no error")
	empties(t, s, "q")
}

// The session must survive while the removal of the orphan waits for the
// queue's lock.
func TestSessionOutlivesTheWaitForTheQueueOfAnOrphan(t *testing.T) {
	var err error
	for range 5 { // a busy machine may delay heartbeats too long
		if err = outliveTheWait(t); err == nil {
			return
		}
	}
	t.Error(err)
}

func outliveTheWait(t *testing.T) error {
	c := newCaseWith(t, "session_timeout=1s")
	s := newSession(t, c)
	reached, answer := make(chan struct{}), make(chan struct{})
	var beats atomic.Int64
	s.Requests.Intercept(func(ctx context.Context, method string, send func(context.Context) error) error {
		err := send(ctx)
		switch {
		case method == "Create":
			close(reached)
			<-answer
			return fmt.Errorf("%w: the reply is lost", driver.ErrUnavailable)
		case method == "Beat" && err == nil:
			beats.Add(1)
		}
		return err
	})
	created := make(chan error, 1)
	go func() {
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
		created <- err
	}()
	select {
	case <-reached:
	case err := <-created: // the session ended before Create was sent
		return err
	}
	operator := begin(t, c, "SELECT * FROM dlock.queue WHERE name = 'q' FOR UPDATE")
	defer operator.Rollback()
	close(answer)
	if err := <-created; err == nil {
		t.Error("the create without a reply succeeded")
	}
	threeTimeouts := beats.Load() + 3*8
	for ; beats.Load() < threeTimeouts; time.Sleep(time.Millisecond) {
		if err := s.Err(); err != nil {
			return fmt.Errorf("while the queue is locked: %w", err)
		}
	}
	if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) != 1 {
		return fmt.Errorf("nodes %v, error %w", nodes, err)
	}
	require.NoError(t, operator.Rollback())
	for nodes, err := s.List(t.Context(), "q"); len(nodes) > 0 || err != nil; nodes, err = s.List(t.Context(), "q") {
		if err != nil {
			return err
		}
	}
	return nil
}
