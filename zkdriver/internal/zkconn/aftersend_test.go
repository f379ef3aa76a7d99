package zkconn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAHookRunsOnceAndOnlyForItsTransaction(t *testing.T) {
	var hs sendHooks
	h := &sendHook{contents: []byte("data of the create")}
	hs.add(h)
	require.Nil(t, hs.take([]byte("another request")))
	require.Same(t, h, hs.take([]byte("a create with data of the create")))
	require.Nil(t, hs.take([]byte("a create with data of the create")), "a hook is taken only once")
	require.False(t, hs.cancel(h), "the hook was taken already")
	hs.add(h)
	require.True(t, hs.cancel(h))
	require.False(t, hs.cancel(h))
	require.Nil(t, hs.take([]byte("a create with data of the create")))
}
