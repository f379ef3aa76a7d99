package cas

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Drivers call Connect in their Connector. This store is in memory.
func ExampleConnect() {
	ctx := context.Background()
	s, err := Connect(ctx, newMemory(), session.Config{Name: "memory", ID: "me", Timeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	holder, _ := s.Create(ctx, "stock/42", driver.NodeSpec{Prefix: "web-W-", Data: []byte("host web")})
	nodes, _ := s.List(ctx, "stock/42")
	fmt.Println(len(nodes), nodes[0] == holder.Node)
	// Output: 1 true
}
