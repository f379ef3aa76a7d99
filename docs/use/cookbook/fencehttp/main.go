// The program fencehttp serves prices, which only the latest holder of a lock may
// set, and sets one. The service's side is in fence.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

var errStale = errors.New("stale token: a later holder of the lock has written")

// put sends the token of the lock with the body.
func put(ctx context.Context, lock *dlock.Lock, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Dlock-Token", strconv.FormatInt(lock.Token(), 10))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed:
		return errStale // stop: somebody else goes on
	}
	return fmt.Errorf("put %s: %s", url, response.Status)
}

func main() {
	set := func(w http.ResponseWriter, r *http.Request) {
		price, _ := io.ReadAll(r.Body)
		fmt.Printf("%s is %s\n", r.PathValue("name"), price)
	}
	mux := http.NewServeMux()
	mux.Handle("PUT /price/{name}", new(fence).handler(http.HandlerFunc(set)))
	server := httptest.NewServer(mux)
	defer server.Close()

	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.RWMutex("price/tea").WithLock(context.Background(), func(ctx context.Context) error {
		return put(ctx, dlock.FromContext(ctx), server.URL+"/price/tea", "3.20")
	})
	if err != nil {
		log.Fatal(err)
	}
}
