"""Play the bug bank: is each defect caught, and each twin left alone?"""
