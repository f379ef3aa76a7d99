package recipes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPatienceEndsLikeAContextWithATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waiting := range []bool{false, true} {
			p := newPatience(time.Second)
			deadline, ok := p.Deadline()
			require.True(t, ok)
			assert.Equal(t, time.Second, time.Until(deadline))
			require.NoError(t, p.Err())
			if waiting {
				began := time.Now()
				<-p.Done()
				assert.Equal(t, time.Second, time.Since(began))
			} else {
				time.Sleep(time.Second)
			}
			require.ErrorIs(t, p.Err(), context.DeadlineExceeded)
			<-p.Done()
			p.cancel()
			require.ErrorIs(t, p.Err(), context.DeadlineExceeded, "the first end counts")
		}
	})
}

func TestPatienceThatIsCancelledEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatience(time.Hour)
		child, cancel := context.WithCancel(p)
		defer cancel()
		synctest.Wait()
		p.cancel()
		<-p.Done()
		<-child.Done()
		require.ErrorIs(t, p.Err(), context.Canceled)
		require.ErrorIs(t, child.Err(), context.Canceled)

		p = newPatience(time.Hour)
		p.cancel()
		<-p.Done()
		require.ErrorIs(t, p.Err(), context.Canceled)
	})
}
