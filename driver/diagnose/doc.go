// Package diagnose makes the checks of [driver.Diagnoser] that are the same for
// all stores. It is for authors of drivers: a driver describes its store to
// [Run], and adds what only it can know about its server.
package diagnose
