package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

func TestNodeWithoutDataIsCleanedUp(t *testing.T) {
	c := newCaseWith(t, "session_timeout=20s")
	s := newSession(t, c)
	s.requests.Lose(faults.OpCreate, true)
	if _, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"}); err == nil {
		t.Fatal("no error")
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		nodes, err := s.List(t.Context(), "q")
		if err == nil && len(nodes) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nodes %v, error %v", nodes, err)
		}
	}
}

// The removal of an orphan may have to wait for a lock on its queue. The
// session must survive that wait, and the orphan must be removed afterwards.
func TestSessionOutlivesTheWaitForTheQueueOfAnOrphan(t *testing.T) {
	c := newCaseWith(t, "session_timeout=3s")
	s := newSession(t, c)
	reached, answer := make(chan struct{}), make(chan struct{})
	var beats atomic.Int64
	s.requests.Intercept(func(ctx context.Context, method string, send func(context.Context) error) error {
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
	<-reached
	operator := begin(t, c, "SELECT * FROM dlock.queue WHERE name = 'q' FOR UPDATE")
	close(answer)
	if err := <-created; err == nil {
		t.Error("the create without a reply succeeded")
	}
	threeTimeouts := beats.Load() + 3*8
	for ; beats.Load() < threeTimeouts; time.Sleep(time.Millisecond) {
		if err := s.Err(); err != nil {
			t.Fatalf("while the queue is locked: %v", err)
		}
	}
	if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) != 1 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
	if err := operator.Rollback(); err != nil {
		t.Fatal(err)
	}
	for nodes, err := s.List(t.Context(), "q"); len(nodes) > 0 || err != nil; nodes, err = s.List(t.Context(), "q") {
		if err != nil {
			t.Fatal(err)
		}
	}
}
