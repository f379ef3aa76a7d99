// Package calls helps authors of drivers with the calls in flight of a session. A
// driver need not use it. The rules below are those of package driver.
//
//   - [Do] calls a function that takes no context, such as one of a client library.
//     Do itself takes a context, and returns promptly when it ends, even if the
//     function still runs: rule 10. A [Group] limits the number of such calls.
//   - A [Gate] ends the calls in flight when the session is closed, and waits for
//     them: rule 11. It can also limit how long each call takes: rule 10.
package calls
