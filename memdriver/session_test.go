package memdriver_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/memdriver"
)

// Whatever stage a Create has reached, no node may be left.
func TestExpiryRacesWithCreate(t *testing.T) {
	for range 50 {
		st := memdriver.New()
		s := connect(t, st)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for s.Err() == nil {
					_, _ = s.Create(background, queue, newNode)
				}
			})
		}
		st.Faults().Expire(s)
		wg.Wait()
		require.Zero(t, st.Stats().Nodes)
		require.Zero(t, st.Stats().Sessions)
	}
}

func TestLeaseCountsFromTheSendingOfTheLastRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		st.Faults().Delay(s, 2*time.Second)
		elapse(time.Second)
		sent := time.Now()
		create(t, s)
		require.Equal(t, 2*time.Second, time.Since(sent))
		st.Faults().CutOff(s)
		<-s.Done()
		require.Equal(t, 7500*time.Millisecond, time.Since(sent))
		synctest.Wait()
		require.Equal(t, 1, st.Stats().Nodes, "the store dropped the session before its own side knew")
	})
}
