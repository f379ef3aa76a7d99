package postgres

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
)

// TestNodeWithoutDataIsCleanedUp loses the reply to a create without data.
func TestNodeWithoutDataIsCleanedUp(t *testing.T) {
	c := newCaseWith(t, "session_timeout=20s")
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.(*caseSession).lose(t, faults.OpCreate, true)
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
