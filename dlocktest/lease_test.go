package dlocktest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

func TestASkewedLeaseKnowsItsEndBeforeItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := driver.NewLease(12*time.Second, 4*time.Second)
		l.Renew(l.Now())
		defer l.End(nil)
		SkewLease(l, 5*time.Second)
		if !l.Renew(l.Now()) {
			t.Fatal("the lease ended 3s early")
		}
		SkewLease(l, 7*time.Second)
		if err := l.Err(); err != nil {
			t.Fatalf("Err returned %v 7s after a renewal, expected nil for 8s", err)
		}
		SkewLease(l, time.Second)
		synctest.Wait()
		if closed(l.Done()) {
			t.Error("Done is closed before the timer has run or Err was called")
		}
		if err := l.Err(); !errors.Is(err, driver.ErrSessionEnded) || !closed(l.Done()) {
			t.Errorf("Err returned %v 8s after a renewal, expected the end of the session, and Done closed", err)
		}
	})
}

func TestDoneOfASkewedLeaseClosesWithinAQuarterOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := driver.NewLease(12*time.Second, 4*time.Second)
		l.Renew(l.Now())
		SkewLease(l, time.Hour)
		began := time.Now()
		<-l.Done()
		if after := time.Since(began); after > 2*time.Second {
			t.Errorf("Done closed %v after the pause, expected a quarter of the term, 2s, at most", after)
		}
	})
}
