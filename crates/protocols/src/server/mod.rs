//! Runs, offered over MCP.
